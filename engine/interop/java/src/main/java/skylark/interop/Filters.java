// SPDX-License-Identifier: Apache-2.0

package skylark.interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.common.filter.ExpressionType;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;

/** Apache's own SQL92 filter, without a broker around it. */
final class Filters {
    void register(Map<String, Main.Op> ops) {
        ops.put("filter.table", Filters::table);
    }

    /**
     * Arguments: expressions, and properties as the texts of stored records. Each expression gives one
     * string: E when it does not compile, else for each text T, F, N (null) or X (it threw).
     */
    private static Object table(Args a) {
        List<MessageEvaluationContext> contexts = new ArrayList<>();
        for (String text : a.texts("properties")) {
            contexts.add(new MessageEvaluationContext(MessageDecoder.string2messageProperties(text)));
        }
        List<String> rows = new ArrayList<>();
        for (String text : a.texts("expressions")) {
            rows.add(row(text, contexts));
        }
        return rows;
    }

    private static String row(String text, List<MessageEvaluationContext> contexts) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get(ExpressionType.SQL92).compile(text);
        } catch (MQFilterException e) {
            return "E";
        }
        StringBuilder row = new StringBuilder();
        for (MessageEvaluationContext context : contexts) {
            row.append(cell(expression, context));
        }
        return row.toString();
    }

    private static char cell(Expression expression, MessageEvaluationContext context) {
        try {
            Object value = expression.evaluate(context);
            if (value == null) {
                return 'N';
            }
            return value == Boolean.TRUE ? 'T' : 'F';
        } catch (Throwable e) {
            return 'X';
        }
    }
}
